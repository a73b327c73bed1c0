package rheostat.ycsb;

import java.util.concurrent.atomic.AtomicInteger;

/** What goes wrong in a run, in words: the first few only. YCSB's results count the rest, by status. */
final class Problems {
  private static final int MOST = 10;
  private static final AtomicInteger SAID = new AtomicInteger();

  private Problems() {}

  static void say(String problem) {
    int before = SAID.getAndUpdate(said -> Math.min(said + 1, MOST + 1));
    if (before < MOST) {
      System.err.println("rheostat: " + problem);
    } else if (before == MOST) {
      System.err.println("rheostat: further problems are counted only, by status");
    }
  }
}
