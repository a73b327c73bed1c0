package rheostat.ycsb;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import java.util.concurrent.atomic.AtomicInteger;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/** YCSB's database: one for each client thread, with a connection and a session of its own. */
public class RheostatClient extends DB implements ReadTransactions {
  /** How many have been made: the next one's place among the addresses. */
  private static final AtomicInteger MADE = new AtomicInteger();

  private Settings settings;
  private Layout layout;
  private Store store;

  @Override
  public void init() throws DBException {
    try {
      settings = Settings.of(getProperties());
      layout = Layout.of(settings);
      Settings.Address address = settings.addresses().get(Math.floorMod(MADE.getAndIncrement(), settings.addresses().size()));
      store = switch (settings.transport()) {
        case RESP -> new RespStore(settings, address);
        case GRPC -> new GrpcStore(settings, address);
      };
    } catch (SettingException | StoreException error) {
      throw new DBException(error.getMessage(), error);
    }
    ReadTransactions.offer(this);
  }

  @Override
  public void cleanup() {
    ReadTransactions.offer(null);
    if (store != null) {
      store.close();
    }
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    return run("read of " + key, () -> {
      Map<String, byte[]> record = layout.read(store, table, List.of(key), fields).get(0);
      if (record == null) {
        return Status.NOT_FOUND;
      }
      record.forEach((field, value) -> result.put(field, new ByteArrayByteIterator(value)));
      return Status.OK;
    });
  }

  @Override
  public Status readTransaction(String table, List<String> keys, Set<String> fields, Map<String, Map<String, ByteIterator>> result) {
    return run("read transaction of " + keys.size() + " records", () -> {
      List<Map<String, byte[]>> records = layout.read(store, table, keys, fields);
      Status status = Status.OK;
      for (int i = 0; i < records.size(); i++) {
        if (records.get(i) == null) {
          status = Status.NOT_FOUND;
        } else {
          result.put(keys.get(i), iterators(records.get(i)));
        }
      }
      return status;
    });
  }

  /**
   * With {@code rheostat.scan=consecutive}, one read-only transaction of the records whose numbers follow; those that are not there are left out. Keys are
   * placed by their hash, there is no scan in their order: without this property NOT_IMPLEMENTED.
   */
  @Override
  public Status scan(String table, String start, int count, Set<String> fields, Vector<HashMap<String, ByteIterator>> result) {
    if (settings.scan() == Settings.Scan.REFUSE) {
      return Status.NOT_IMPLEMENTED;
    }
    return run("scan from " + start, () -> {
      for (Map<String, byte[]> record : layout.read(store, table, ConsecutiveKeys.from(start, count, settings.keyDigits()), fields)) {
        if (record != null) {
          result.add(iterators(record));
        }
      }
      return Status.OK;
    });
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    return run("update of " + key, () -> layout.update(store, table, key, bytes(values)) ? Status.OK : Status.NOT_FOUND);
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    return run("insert of " + key, () -> {
      layout.insert(store, table, key, bytes(values));
      return Status.OK;
    });
  }

  @Override
  public Status delete(String table, String key) {
    return run("delete of " + key, () -> layout.delete(store, table, key) ? Status.OK : Status.NOT_FOUND);
  }

  /** An operation that may fail. */
  private interface Operation {
    Status run() throws StoreException;
  }

  private static Status run(String what, Operation operation) {
    try {
      return operation.run();
    } catch (StoreException error) {
      Problems.say(what + " failed: " + error.getMessage());
      return error.status();
    }
  }

  private static HashMap<String, ByteIterator> iterators(Map<String, byte[]> record) {
    HashMap<String, ByteIterator> iterators = new HashMap<>();
    record.forEach((field, value) -> iterators.put(field, new ByteArrayByteIterator(value)));
    return iterators;
  }

  private static Map<String, byte[]> bytes(Map<String, ByteIterator> values) {
    Map<String, byte[]> bytes = new LinkedHashMap<>();
    values.forEach((field, value) -> bytes.put(field, value.toArray()));
    return bytes;
  }
}
