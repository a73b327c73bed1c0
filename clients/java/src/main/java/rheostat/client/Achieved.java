package rheostat.client;

import java.time.Duration;

/**
 * What an answer satisfies of its service level.
 *
 * @param entry the first entry that it satisfies, counted from 1
 * @param used the time that it took at the node that was asked. The way there and back is not in it
 * @param answeredIn the data center that has answered a read; null after a write
 * @param dataCenters in how many data centers a write was when it was answered; null after a read
 */
public record Achieved(int entry, Duration used, String answeredIn, Integer dataCenters) {}
