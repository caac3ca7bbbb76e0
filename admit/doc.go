// Package admit lets jobs in as far as a number of bytes goes, and learns how many each needs. It is
// for services whose GPU memory is a library's, such as one that loads models; it knows no GPU and
// imports none of the runtime. The bytes that a job uses come from the caller: the library's own number,
// or what NVML says of the process, less what it said before, where one job at a time allocates.
//
//	gate, err := admit.New(admit.Config{Limit: 40 << 30, Passes: 4})
//	...
//	a, err := gate.Enter(ctx, "model-7b", admit.ShapeOf("context", tokens))
//	if err != nil {
//		return err // it never fits, and the error says why; or ctx has ended
//	}
//	defer a.Abort() // does nothing after Leave
//	load()
//	if err := a.Observe(library.Bytes()); err != nil {
//		return err // it needs more than there is, and the error says how much
//	}
//	serve()
//	a.Leave()
//
// # Who is let in
//
// A job reserves the upper end of what it will need before it begins. Jobs that wait are served in
// the order of their coming, and have nothing. At most [Config].Passes jobs that fit pass the
// first, while it does not. One that needs more than the limit, even by the lower end of what is
// predicted, is refused; one that only may need more runs alone. A job that was never seen reserves
// an eighth of the limit as a guess, or as much as a job of its name uses that came before. A job
// inside never waits: what it uses beyond its reservation counts at once, and it is told what was
// not there. So each job inside can end without another one's doing, and when all have ended the
// first that waits is let in: no deadlock. All states of eight such jobs with contexts that end
// anywhere are explored (dev/proof.md).
//
// # What is learned
//
// A [Model] keeps the last 256 runs of each name and kind of shape. Their sizes are brought to one axis
// by least squares over 1, x, y, xy, x² and y², with no factor below zero. The prediction is read off
// there by one of three rules: the sum itself; piecewise linear between the largest peaks up to each
// size; or that of the next larger size, for memory that grows in steps. Added is the largest error
// that the runs have if each is predicted from the others (Barber et al., Predictive inference with
// the jackknife+, 2021), as a factor or as a difference. Of these six the one is taken that would
// have reserved the least. Beyond the sizes that were seen the prediction grows more than in
// proportion.
//
// Five runs in a row, all above or all below the middle eight tenths of the errors, mean a change,
// such as a deploy. What one factor explains is carried over, the rest is forgotten. Eight in a row
// of which some are above and some below mean one, too, of which nothing is carried over. Until a
// change is known, each run above its reservation raises those that follow. A change to less that
// turns out not to last makes the model slow to believe the next one. One size of several that
// needs less makes no such row: it is followed when its earlier runs are not among the last 256.
// Each run that is under its reservation, of a size that was seen, widens the margin, and the others narrow it, so that in
// the long run one in two hundred is (Gibbs and Candès, Adaptive conformal inference under distribution shift, 2021).
//
// In simulations of 1000 runs of nine kinds of programs, with noise of up to 2 % and changes in the
// middle, at most 1 % of the jobs after the first 20 needed more than reserved, and at most 15 % more
// was reserved than needed; of memory in powers of two that also changes and is noisy up to 25 %
// (TestLearnedPeaksKeepTheirTarget). Noise has its price: where peaks of one size differ by 10 %
// (one standard deviation), 33 to 56 % more is reserved, and one who knew the distribution would need 26 %
// (TestHeavyNoiseIsCoveredAtAPrice).
//
// A simulated service of 16 workers has a quarter, a half and three quarters of the memory that all
// its jobs at once take. Behind a gate none fails after the first 20 of each kind, and it is 4, 2 and
// 1.3 times as fast as behind the best semaphore with which none fails
// (TestAServiceBehindAGateRunsAsFastAsBehindTheBestSemaphore).
//
// # Why
//
// Others guess: a model planned at 22.8 GB that did not fit (kronk#705), a semaphore that counts jobs
// because bytes are brittle (eigenda#2249), evictions on a wrong number of free bytes
// (ollama#16719, #13235), and LocalAI#9375, #11970, #12058, llama-swap#158, #319, model-runner#106,
// go-faiss#59, #66, rmm#622, jax#8096, HAMi#2143, kai-scheduler#708, #1524. In a queue that lets
// whatever fits go first, a large waiter starves (golang/go#56910); in one that lets nothing pass, the first
// holds up all (velox#15637). Waiting while holding bytes is how others deadlock
// (cudf-spark-jni#4046, spark-rapids#12211, velox#6625).
package admit
