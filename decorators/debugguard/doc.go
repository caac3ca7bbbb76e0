// Package debugguard finds memory bugs in running programs: it is a
// [core.Resource] around another one that keeps a ledger of blocks and their
// uses and, for the blocks it guards, watches their bytes on the device.
//
// # Modes
//
// [Off] costs one atomic load an operation, once no block is known and no verdict awaited. [Ledger] works on the host alone,
// see below. [Sample] also
// guards some blocks on the device, chosen by bytes as TCMalloc's profiler
// does and no more than so many in a second, at a rate of their own for some
// tags, and every block of a hunted one. [Hunt] guards every block, poisons it whole and keeps all stacks; its
// options compare after every launch, delay launches and unmap what was freed.
// Mode and options may change at any time: each block
// remembers how it was allocated, and one allocated while the guard was off
// is unknown to the ledger, never foreign.
//
// # The ledger
//
// It holds a packed record of every block, with its last four declared uses,
// and a copy of the record of the blocks released last: at most 256 MiB of host
// memory for a million live blocks, and 96 MiB more over a resource that is none of this
// module's, for a table of its own. It takes no global lock and, once warm,
// allocates nothing. From what is declared, and from the backend's word on what
// is ordered before what ([core.Inspector]), it finds
//
//   - double and foreign frees, a free by a pointer outside the block, stale
//     handles, a launch on a stream that is not leased;
//   - a late use of memory that another block has by now (reuse race);
//   - a read of a block that no declared launch has written, once a block;
//   - a pointer among a launch's arguments ([core.UseRequest.Pointers]) into a
//     live block that it does not declare, once for the launch's name and the
//     block, or into a freed one and in no live one;
//   - a use recorded after work that was enqueued without waits, while a
//     conflicting use was not known to be ordered before it (missing fence, or
//     use before the allocation is ready). What the runtime was not told, such
//     as a wait on the whole device behind its back, it does not know.
//
// [Advanced.Refuse] makes it refuse what it otherwise only reports. A block that
// was allocated while the guard was off, or around it, has no record and is never
// accused.
//
// The times of uses and allocations come from a clock that a timer moves every
// 10 ms while the guard is on, so no operation reads the real one for them.
// Stacks are kept of blocks chosen by bytes and of those of 1 MiB and more, 1600
// in a second at most.
//
// # A guarded block
//
// The guard asks its upstream for a red zone on both sides, fills them, and
// hands out the middle: the caller's pointer is shifted, the generation is
// not. At the free the block is filled with poison, and it enters a quarantine,
// first in first out, limited by bytes and by age. When it leaves, poison and red
// zones are compared, many blocks at a time, and its free is forwarded at once: the
// fence of the comparison orders the real free behind it. The verdict is read when
// the device has completed the comparison, by a tick in the background, by ReapPending
// or by Drain. Who allocates reads no verdict of other blocks, and who frees reads
// some only where 4096 are awaited; nothing on the launch path waits, unless a
// hunt bisects on a device that falls far behind.
//
// So damage is told when the block leaves, at its age, by [Resource.Flush] or by
// [Resource.Drain], and not at the free. The tick runs while anything is in
// quarantine or a verdict is awaited ([Advanced.UpkeepInterval]), and
// [Resource.Close] ends it. Of a block that is never freed the red zones are
// compared when the runtime is closed ([Resource.CheckLive]). The suspects for a
// red zone are then all launches between the allocation and that comparison,
// which are many: those that used the block come first, as far as the ledger
// remembers them. Damage is missed if another stray write undid it, or if the
// guard was switched off around the free. A block that will not be quarantined is
// compared at the free, and when bisecting every block is.
//
// Each access of the guard's own is a launch through the layers below:
// PrepareUse, enqueue, FinishUse. The patterns are derived from generation
// and side, so bytes copied from another red zone do not pass for one's own,
// and poison reads as NaN in every common float format.
//
// # What else a hunt watches
//
// A block that its owner seals is read-only: a write that a launch declares is
// found when it is announced, any other by a checksum of the bytes. Where a
// hunt has let a block go, a canary of the guard's own takes the bytes and is
// compared with the rest. When bisecting, everything that is ordered before a
// launch's stream is compared behind the launch, within a bound and in turn, so
// that a finding's window is one launch wide; launches then wait for the device, a
// second at most, rather than leave comparisons out. A delay sits between a
// launch's waits and its work, so that work which is not ordered behind the launch
// overtakes it.
//
// While a stream captures, nothing of the guard's is put on it: the default
// stream takes its place where it can, behind the same fences, and
// GuardStats.Captured counts it.
//
// # What gives way
//
// The guard never makes a program fail. Before a request is refused for want of
// memory, the guard gives up its canaries, then quarantine, oldest block first;
// where the device has yet to complete those frees it waits for them; and last
// the block goes without red zones. A caller that conflicts with an access of the
// guard's own waits for that access. If the layers below refuse a launch of the
// guard's, the block counts as unchecked and its plain free is forwarded. If a
// free fails as a block leaves quarantine, the block stays there and the free is
// tried again.
//
// Over an upstream without use tracking the guard synchronises the stream
// around its own work. Without device operations only the ledger runs, and
// Features lacks [core.DeviceChecks].
package debugguard
