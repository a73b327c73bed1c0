package rheostat.ycsb;

import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import site.ycsb.Status;

/** How a record of fields is kept in a store of keys and values. */
interface Layout {
  /**
   * Records in the order of their keys, null where there is none: one read-only transaction, or one read if one key of the store is asked for.
   *
   * @param fields those wanted; null is all
   */
  List<Map<String, byte[]>> read(Store store, String table, List<String> keys, Set<String> fields) throws StoreException;

  /** Writes a whole record, whether it was there or not. */
  void insert(Store store, String table, String key, Map<String, byte[]> record) throws StoreException;

  /** Writes some fields of a record. Returns false if it is known that there is none. */
  boolean update(Store store, String table, String key, Map<String, byte[]> fields) throws StoreException;

  /** Deletes a record. Returns whether it was there. */
  boolean delete(Store store, String table, String key) throws StoreException;

  /** The layout that the settings ask for. */
  static Layout of(Settings settings) {
    return switch (settings.layout()) {
      case KEYS -> new KeysLayout(settings.fields());
      case VALUE -> new ValueLayout(settings.fields());
    };
  }

  /** Table and key as one text. Characters that would make two records one, or spread one over partitions, are refused. */
  static String name(String table, String key) throws StoreException {
    if (table.indexOf('/') >= 0 || hasBrace(table) || hasBrace(key) || key.isEmpty()) {
      String rule = ": neither may have { or }, the table no /, and the key must not be empty";
      throw new StoreException(Status.BAD_REQUEST, "table " + table + ", key " + key + rule, null);
    }
    return table + "/" + key;
  }

  /** The values of the store's keys: a read of one, or a read-only transaction of several. */
  static List<byte[]> values(Store store, List<byte[]> keys) throws StoreException {
    return keys.size() == 1 ? Collections.singletonList(store.get(keys.get(0))) : store.getAll(keys);
  }

  /** The bytes of a key of the store. */
  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static boolean hasBrace(String text) {
    return text.indexOf('{') >= 0 || text.indexOf('}') >= 0;
  }
}
