package rheostat.client;

import java.util.List;

/**
 * Values that stand side by side.
 *
 * @param values newest first; none if the key is absent
 * @param context which versions were seen; {@link Session#replace} takes it
 */
public record Siblings(List<byte[]> values, String context) {}
