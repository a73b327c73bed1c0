package rheostat.ycsb;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.Status;
import site.ycsb.WorkloadException;
import site.ycsb.generator.ExponentialGenerator;
import site.ycsb.measurements.Measurements;
import site.ycsb.workloads.CoreWorkload;

/**
 * YCSB's core workload, and read-only transactions of several records beside it, reported as READ-TRANSACTION.
 *
 * <p>{@code rheostat.rotx.keys} (10) is the number of records of a transaction, all different, chosen by {@code requestdistribution};
 * {@code rheostat.rotx.proportion} (0.5) the share of transactions; what is left is shared by the core workload's own proportions.
 */
public class ReadTransactionWorkload extends CoreWorkload {
  private static final String OPERATION = "READ-TRANSACTION";
  private static final int MAX_KEYS = 10_000;

  /** Draws for each key wanted, before the numbers that follow those drawn are taken: a skewed distribution repeats itself. */
  private static final int DRAWS = 20;

  private final Measurements measurements = Measurements.getMeasurements();
  private int keys;
  private double proportion;
  private boolean verify;
  private String fieldPrefix;

  @Override
  public void init(Properties properties) throws WorkloadException {
    super.init(properties);
    try {
      keys = Settings.number(properties, "rheostat.rotx.keys", "10", 1, MAX_KEYS);
    } catch (SettingException error) {
      throw new WorkloadException(error.getMessage(), error);
    }
    String text = properties.getProperty("rheostat.rotx.proportion", "0.5");
    try {
      proportion = Double.parseDouble(text);
    } catch (NumberFormatException error) {
      proportion = -1;
    }
    if (!(proportion >= 0 && proportion <= 1)) {
      throw new WorkloadException("rheostat.rotx.proportion=" + text + ": allowed are numbers from 0 to 1");
    }
    if (keys > recordcount) {
      throw new WorkloadException("rheostat.rotx.keys=" + keys + " different records cannot be chosen from recordcount=" + recordcount);
    }
    verify = Boolean.parseBoolean(properties.getProperty(DATA_INTEGRITY_PROPERTY, DATA_INTEGRITY_PROPERTY_DEFAULT));
    fieldPrefix = properties.getProperty(FIELD_NAME_PREFIX, FIELD_NAME_PREFIX_DEFAULT);
  }

  @Override
  public Object initThread(Properties properties, int thread, int threads) throws WorkloadException {
    if (ReadTransactions.here() == null) {
      throw new WorkloadException("this database offers no read-only transactions; " + RheostatClient.class.getName() + " does");
    }
    return super.initThread(properties, thread, threads);
  }

  @Override
  public boolean doTransaction(DB db, Object state) {
    if (ThreadLocalRandom.current().nextDouble() >= proportion) {
      return super.doTransaction(db, state);
    }
    transaction();
    return true;
  }

  private void transaction() {
    List<String> chosen = chooseKeys();
    Set<String> fields = null;
    if (!readallfields) {
      fields = new HashSet<>();
      fields.add(fieldPrefix + fieldchooser.nextString());
    }
    Map<String, Map<String, ByteIterator>> result = new HashMap<>();
    long intended = measurements.getIntendedtartTimeNs();
    long started = System.nanoTime();
    Status status = ReadTransactions.here().readTransaction(table, chosen, fields, result);
    long ended = System.nanoTime();
    String name = status != null && status.isOk() ? OPERATION : OPERATION + "-FAILED";
    measurements.measure(name, (int) ((ended - started) / 1000));
    measurements.measureIntended(name, (int) ((ended - intended) / 1000));
    measurements.reportStatus(OPERATION, status);
    if (verify) {
      result.forEach((key, record) -> verifyRow(key, new HashMap<>(record)));
    }
  }

  private List<String> chooseKeys() {
    long last = transactioninsertkeysequence.lastValue();
    Set<Long> numbers = new LinkedHashSet<>();
    long number = 0;
    for (int draws = 0; numbers.size() < keys && draws < DRAWS * keys; draws++) {
      number = keychooser.nextValue().longValue();
      if (keychooser instanceof ExponentialGenerator) {
        number = last - number;
      }
      if (number >= 0 && number <= last) {
        numbers.add(number);
      }
    }
    while (numbers.size() < keys) {
      number = number >= 0 && number < last ? number + 1 : 0;
      numbers.add(number);
    }
    List<String> names = new ArrayList<>(keys);
    numbers.forEach(each -> names.add(buildKeyName(each)));
    return names;
  }
}
