// rose serve: an OpenAI-compatible server over one loaded model.
#pragma once

namespace CLI {
class App;
}

namespace rose {
void register_serve(CLI::App& app);
}
