// Stands for the header that RMM's build generates: messages are left out.
#pragma once
#define RMM_LOG_LEVEL_OFF 6
#define RMM_LOG_ACTIVE_LEVEL RMM_LOG_LEVEL_OFF
#define RMM_LOG_TRACE(...) (void)0
#define RMM_LOG_DEBUG(...) (void)0
#define RMM_LOG_INFO(...) (void)0
#define RMM_LOG_WARN(...) (void)0
#define RMM_LOG_ERROR(...) (void)0
#define RMM_LOG_CRITICAL(...) (void)0
