/**
 * Rheostat for Jedis: sessions that go along with a user, levels for each call, counters with bounds. Start at {@link rheostat.client.Client}.
 */
package rheostat.client;
