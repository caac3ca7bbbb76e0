// Stands for rapids_logger, which RMM's headers name: a logger that says nothing.
#pragma once
#include <memory>
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
