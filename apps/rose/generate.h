// rose generate: one prompt in, one completion out; for scripts.
#pragma once

namespace CLI {
class App;
}

namespace rose {
void register_generate(CLI::App& app);
}
