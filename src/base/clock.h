// Time arrives as a value, so that schedulers and tests can choose it.
#pragma once

#include <chrono>

namespace rose {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

inline double seconds_between(Time from, Time to) { return std::chrono::duration<double>(to - from).count(); }

}  // namespace rose
