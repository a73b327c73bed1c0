package rheostat.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * What operations ask for beside. What is null is the keyspace's own.
 *
 * @param level {@code eventual}, {@code session}, {@code causal}, {@code local}, {@code strong}, or guarantees with {@code +} between them
 * @param strategy how a read-only transaction finds its snapshot: {@code auto}, {@code coordinated}, {@code predicted}
 * @param fresh how stale a read may be; until it is fresh enough, it waits
 * @param within how long an operation may wait at its partition server
 * @param serviceLevel a name or entries, best first, as in {@code strong 200ms; causal 1s 20ms; eventual}; {@code none} is none at all
 * @param quorum how many replicas are asked, must answer a read, must have a write, in keyspaces of protocol {@code quorum}
 * @param groups the checking groups of reads, in keyspaces of protocol {@code adaptive}
 */
public record Dial(String level, String strategy, Duration fresh, Duration within, String serviceLevel, List<Integer> quorum, List<Integer> groups) {
  /** Nothing. */
  public static final Dial NONE = new Dial(null, null, null, null, null, null, null);

  /** With this level. */
  public Dial withLevel(String level) {
    return new Dial(level, strategy, fresh, within, serviceLevel, quorum, groups);
  }

  /** With this strategy. */
  public Dial withStrategy(String strategy) {
    return new Dial(level, strategy, fresh, within, serviceLevel, quorum, groups);
  }

  /** With this bound of staleness. */
  public Dial withFresh(Duration fresh) {
    return new Dial(level, strategy, fresh, within, serviceLevel, quorum, groups);
  }

  /** With this bound of waiting. */
  public Dial withWithin(Duration within) {
    return new Dial(level, strategy, fresh, within, serviceLevel, quorum, groups);
  }

  /** With this service level. */
  public Dial withServiceLevel(String serviceLevel) {
    return new Dial(level, strategy, fresh, within, serviceLevel, quorum, groups);
  }

  /** With this quorum. */
  public Dial withQuorum(int asked, int reads, int writes) {
    return new Dial(level, strategy, fresh, within, serviceLevel, List.of(asked, reads, writes), groups);
  }

  /** With these checking groups. */
  public Dial withGroups(List<Integer> groups) {
    return new Dial(level, strategy, fresh, within, serviceLevel, quorum, groups);
  }

  /** The commands that make a connection ask for this. */
  List<Command> before() {
    List<Command> commands = new ArrayList<>();
    add(commands, "LEVEL", level);
    add(commands, "STRATEGY", strategy);
    add(commands, "FRESH", fresh == null ? null : milliseconds(fresh));
    add(commands, "WITHIN", within == null ? null : milliseconds(within));
    add(commands, "SLA", serviceLevel);
    addAll(commands, "QUORUM", quorum);
    addAll(commands, "GROUPS", groups);
    return commands;
  }

  /** The commands that take it back. */
  List<Command> after() {
    List<Command> commands = new ArrayList<>();
    add(commands, "LEVEL", level == null ? null : "DEFAULT");
    add(commands, "STRATEGY", strategy == null ? null : "AUTO");
    add(commands, "FRESH", fresh == null ? null : "NONE");
    add(commands, "WITHIN", within == null ? null : "NONE");
    add(commands, "SLA", serviceLevel == null ? null : "DEFAULT");
    add(commands, "QUORUM", quorum == null ? null : "DEFAULT");
    add(commands, "GROUPS", groups == null ? null : "AUTO");
    return commands;
  }

  static String milliseconds(Duration duration) {
    return Long.toString(Math.max(1, millis(duration)));
  }

  /** Its milliseconds; as many as a number can be where there are more. */
  static long millis(Duration duration) {
    try {
      return duration.toMillis();
    } catch (ArithmeticException tooMany) {
      return duration.isNegative() ? 0 : Long.MAX_VALUE;
    }
  }

  /** As {@link #millis}, of nanoseconds: of these there are too many in 300 years. */
  static long nanos(Duration duration) {
    try {
      return duration.toNanos();
    } catch (ArithmeticException tooMany) {
      return duration.isNegative() ? 0 : Long.MAX_VALUE;
    }
  }

  private static void add(List<Command> commands, String name, String value) {
    if (value != null) {
      commands.add(Command.of("RHEO", name, value));
    }
  }

  private static void addAll(List<Command> commands, String name, List<Integer> values) {
    if (values != null) {
      List<Object> words = new ArrayList<>(List.of("RHEO", name));
      words.addAll(values);
      commands.add(Command.of(words.toArray()));
    }
  }
}
