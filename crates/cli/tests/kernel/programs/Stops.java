// SPDX-License-Identifier: Apache-2.0 OR MIT
import java.util.ArrayList;
import java.util.List;

/**
 * Two threads that allocate, so that the virtual machine collects garbage now and then, and of all memory as often as one of
 * them asks for it; or that take turns at a lock and compute with it in hand. For so many milliseconds.
 */
public class Stops {
	static volatile Object sink;
	static volatile boolean stop;

	static void allocate(List<Object> kept, boolean asks) {
		long next = System.nanoTime();

		while (!stop) {
			if (asks && System.nanoTime() > next) {
				System.gc();
				next = System.nanoTime() + 50_000_000;
			}
			for (int it = 0; it < 1000; it++)
				sink = new byte[512];
			kept.set((int) (Math.random() * kept.size()), new Object[] { new byte[64] });
		}
	}

	static void takeTurns() {
		while (!stop) {
			synchronized (Stops.class) {
				long end = System.nanoTime() + 5_000_000;
				while (System.nanoTime() < end)
					;
			}
		}
	}

	public static void main(String[] args) throws Exception {
		boolean allocates = args[0].equals("allocates");
		List<Object> kept = new ArrayList<>();
		List<Thread> all = new ArrayList<>();

		for (int it = 0; allocates && it < 600_000; it++)
			kept.add(new Object[] { new byte[64] });
		for (int it = 0; it < 2; it++) {
			boolean asks = it == 0;
			Runnable work = allocates ? () -> allocate(kept, asks) : Stops::takeTurns;
			Thread thread = new Thread(work, "request-" + it);

			thread.start();
			all.add(thread);
		}
		Thread.sleep(Long.parseLong(args[1]));
		stop = true;
		for (Thread thread : all)
			thread.join();
	}
}
