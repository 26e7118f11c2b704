// rose bench: how fast a checkpoint, and each operation, runs on this machine.
#pragma once

namespace CLI {
class App;
}

namespace rose {
void register_bench(CLI::App& app);
}
