// rose bench: prefill and decode speed of any checkpoint on this machine.
#pragma once

namespace CLI {
class App;
}

namespace rose {
void register_bench(CLI::App& app);
}
