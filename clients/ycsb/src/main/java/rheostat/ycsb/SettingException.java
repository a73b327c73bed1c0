package rheostat.ycsb;

/** A property that the binding cannot work with; its message says what is allowed. */
final class SettingException extends Exception {
  private static final long serialVersionUID = 1L;

  SettingException(String message) {
    super(message);
  }
}
