package rheostat.ycsb;

import site.ycsb.Status;

/** An operation that failed, and what YCSB is told. */
final class StoreException extends Exception {
  private static final long serialVersionUID = 1L;

  /** The deadline passed. A write may have happened. YCSB has no status for that. */
  static final Status TIMEOUT = new Status("TIMEOUT", "The deadline passed; a write may have happened.");

  private final transient Status status;

  StoreException(Status status, String message, Throwable cause) {
    super(message, cause);
    this.status = status;
  }

  Status status() {
    return status;
  }
}
