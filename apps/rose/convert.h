// rose convert: a checkpoint folder into one file that starts faster.
#pragma once

namespace CLI {
class App;
}

namespace rose {
void register_convert(CLI::App& app);
}
