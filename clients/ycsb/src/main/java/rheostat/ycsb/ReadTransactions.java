package rheostat.ycsb;

import java.util.List;
import java.util.Map;
import java.util.Set;
import site.ycsb.ByteIterator;
import site.ycsb.Status;

/**
 * A database that reads several records from one snapshot. YCSB's interface has no word for that, and its wrapper hides the database from the workload;
 * so a database says in {@link #offer} that it is the one of its client thread, and the workload, which runs in the same thread, asks {@link #here}.
 */
public interface ReadTransactions {
  /**
   * Reads records in one read-only transaction.
   *
   * @param fields those wanted; null is all
   * @param result receives the records that are there, by key
   * @return NOT_FOUND if one of them is not there
   */
  Status readTransaction(String table, List<String> keys, Set<String> fields, Map<String, Map<String, ByteIterator>> result);

  /** Makes this the database of the calling thread; null: there is none any more. */
  static void offer(ReadTransactions database) {
    if (database == null) {
      Offered.HERE.remove();
    } else {
      Offered.HERE.set(database);
    }
  }

  /** The database of the calling thread; null if it has none that offers read-only transactions. */
  static ReadTransactions here() {
    return Offered.HERE.get();
  }

  /** Where the databases are kept. */
  final class Offered {
    private static final ThreadLocal<ReadTransactions> HERE = new ThreadLocal<>();

    private Offered() {}
  }
}
