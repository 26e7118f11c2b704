// rose chat: a conversation in the terminal, with the channels shown.
#pragma once

namespace CLI {
class App;
}

namespace rose {
void register_chat(CLI::App& app);
}
