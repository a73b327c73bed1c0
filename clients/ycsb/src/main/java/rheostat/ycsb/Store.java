package rheostat.ycsb;

import java.util.List;

/**
 * One session with a server: what a YCSB client thread holds. Not for several threads.
 *
 * <p>Every call is bounded by {@code rheostat.timeout.ms}.
 */
interface Store extends AutoCloseable {
  /** The value of a key; null if there is none. */
  byte[] get(byte[] key) throws StoreException;

  /** The values of keys in their order, null where there is none: one read-only transaction. No key may come twice. */
  List<byte[]> getAll(List<byte[]> keys) throws StoreException;

  /** Writes a key. */
  void put(byte[] key, byte[] value) throws StoreException;

  /** Writes several keys of one partition; they appear together. */
  void putAll(List<byte[]> keys, List<byte[]> values) throws StoreException;

  /** Deletes keys of one partition. Returns whether one of them was there. */
  boolean delete(List<byte[]> keys) throws StoreException;

  @Override
  void close();
}
