// Stands for rapids_logger, which RMM's headers name: a logger that says nothing. RMM's
// headers count on some of what the real one includes.
#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>
namespace rapids_logger {
enum class level_enum { trace, debug, info, warn, error, critical, off };
struct sink {};
using sink_ptr = std::shared_ptr<sink>;
struct logger {
	template <class... Arguments> explicit logger(Arguments &&...) {}
	template <class... Arguments> void info(Arguments &&...) {}
	template <class... Arguments> void debug(Arguments &&...) {}
	void set_level(level_enum) {}
	void flush() {}
};
}  // namespace rapids_logger
