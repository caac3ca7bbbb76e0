#include "textflag.h"

// fixed runs on the system stack with a *Frame in DI, as C functions do, loads
// four arguments into registers and calls. The frame's size keeps the stack
// aligned to 16 bytes.
GLOBL ·fixedABI0(SB), NOPTR|RODATA, $8
DATA ·fixedABI0(SB)/8, $fixed(SB)
TEXT fixed(SB), NOSPLIT, $16
	MOVQ DI, 8(SP)
	MOVQ DI, R11
	MOVQ 0(R11), R10
	MOVQ 8(R11), DI
	MOVQ 16(R11), SI
	MOVQ 24(R11), DX
	MOVQ 32(R11), CX
	XORL AX, AX
	CALL R10
	MOVQ 8(SP), R11
	MOVQ AX, 40(R11)
	XORL AX, AX
	RET
