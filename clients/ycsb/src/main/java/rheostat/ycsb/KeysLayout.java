package rheostat.ycsb;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Every field under a key of its own, {@code {table/key}field}. The braces keep a record on one partition, so that its fields are written together.
 * All operations are one request.
 */
final class KeysLayout implements Layout {
  private final List<String> allFields;

  KeysLayout(List<String> allFields) {
    this.allFields = allFields;
  }

  @Override
  public List<Map<String, byte[]>> read(Store store, String table, List<String> keys, Set<String> fields) throws StoreException {
    Collection<String> wanted = fields == null ? allFields : fields;
    List<byte[]> asked = new ArrayList<>(keys.size() * wanted.size());
    for (String key : keys) {
      asked.addAll(keysOf(table, key, wanted));
    }
    List<byte[]> values = Layout.values(store, asked);
    List<Map<String, byte[]>> records = new ArrayList<>(keys.size());
    int next = 0;
    for (int i = 0; i < keys.size(); i++) {
      Map<String, byte[]> record = new LinkedHashMap<>();
      for (String field : wanted) {
        byte[] value = values.get(next++);
        if (value != null) {
          record.put(field, value);
        }
      }
      records.add(record.isEmpty() ? null : record);
    }
    return records;
  }

  @Override
  public void insert(Store store, String table, String key, Map<String, byte[]> record) throws StoreException {
    List<byte[]> keys = keysOf(table, key, record.keySet());
    List<byte[]> values = new ArrayList<>(record.values());
    if (keys.size() == 1) {
      store.put(keys.get(0), values.get(0));
    } else {
      store.putAll(keys, values);
    }
  }

  /** Does not look whether the record is there. */
  @Override
  public boolean update(Store store, String table, String key, Map<String, byte[]> fields) throws StoreException {
    insert(store, table, key, fields);
    return true;
  }

  @Override
  public boolean delete(Store store, String table, String key) throws StoreException {
    return store.delete(keysOf(table, key, allFields));
  }

  private static List<byte[]> keysOf(String table, String key, Collection<String> fields) throws StoreException {
    String prefix = "{" + Layout.name(table, key) + "}";
    List<byte[]> keys = new ArrayList<>(fields.size());
    for (String field : fields) {
      keys.add(Layout.bytes(prefix + field));
    }
    return keys;
  }
}
