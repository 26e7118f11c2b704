// The token engine: a loop thread that plans steps, and one worker thread a rank that runs them.
#pragma once

#include <memory>
#include <vector>

#include "engine/engine_options.h"
#include "engine/router.h"
#include "models/model.h"

namespace rose {

// ranks[i], communicators[i] and streams[i] make rank i. Without streams, every rank runs on the CPU with
// options.threads. Takes all memory (KV, activations, slabs) now and logs the table; throws StartError
// (kExitDoesNotFit, or kExitUsage for an option out of range) where that cannot be.
std::unique_ptr<TokenEngine> make_engine(std::vector<std::unique_ptr<Model>> ranks,
                                         std::vector<std::unique_ptr<Communicator>> communicators,
                                         const EngineOptions& options, std::vector<Stream> streams = {});

}  // namespace rose
