#include "textflag.h"

// The trampoline runs on the system stack with a *Frame in DI, as a C function
// does. It follows the System V ABI: six arguments in registers, the others
// on the stack. The size of its frame, with the saved frame pointer, keeps the
// stack aligned to 16 bytes at the call; the words above the arguments keep
// the address of the Frame. What is behind it is called in turn.
GLOBL ·trampoline(SB), NOPTR|RODATA, $8
DATA ·trampoline(SB)/8, $callC<>(SB)

TEXT callC<>(SB), NOSPLIT, $48
	MOVQ DI, R11

call:
	MOVQ R11, 40(SP)
	MOVQ 56(R11), AX
	MOVQ AX, 0(SP)
	MOVQ 64(R11), AX
	MOVQ AX, 8(SP)
	MOVQ 72(R11), AX
	MOVQ AX, 16(SP)
	MOVQ 80(R11), AX
	MOVQ AX, 24(SP)
	MOVQ 88(R11), AX
	MOVQ AX, 32(SP)
	MOVQ 0(R11), R10
	MOVQ 8(R11), DI
	MOVQ 16(R11), SI
	MOVQ 24(R11), DX
	MOVQ 32(R11), CX
	MOVQ 40(R11), R8
	MOVQ 48(R11), R9
	XORL AX, AX
	CALL R10
	MOVQ 40(SP), R11
	MOVQ AX, 96(R11)
	CMPB 112(R11), $0
	JEQ  next
	TESTL AX, AX
	JNE  done

next:
	MOVQ 104(R11), R11
	TESTQ R11, R11
	JNE  call

done:
	XORL AX, AX
	RET
