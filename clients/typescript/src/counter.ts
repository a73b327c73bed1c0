/** Counters. */

import * as errors from "./errors.js";
import type { Session } from "./session.js";
import { mapOf, numberOf, textOf } from "./session.js";
import type { Bytes, CounterView, NewCounter, Scope } from "./types.js";


/** One counter, through a session. */
export class Counter {
  readonly #session: Session<any>;
  readonly #key: Bytes;
  readonly #scope: Scope;

  /** Made by `Session.counter`. */
  constructor(session: Session<any>, key: Bytes, scope: Scope) {
    this.#session = session;
    this.#key = key;
    this.#scope = scope;
  }

  /** Updates fetch the rights that are missing from other data centers. */
  global(): Counter {
    return new Counter(this.#session, this.#key, "global");
  }

  /** Updates use the rights of the data center that is asked, and no others. */
  local(): Counter {
    return new Counter(this.#session, this.#key, "local");
  }

  /** Makes the counter; refused when the key is there. */
  async create(counter: NewCounter = {}): Promise<void> {
    const { lower, upper, initial = 0, placement = [] } = counter;
    const bounds = [...(lower === undefined ? [] : ["MIN", lower]), ...(upper === undefined ? [] : ["MAX", upper])];
    const places = placement.length === 0 ? [] : ["PLACE", ...placement];
    await this.#session.one(true, "RHEO", "COUNTER", "CREATE", this.#key, ...bounds, "VALUE", initial, ...places);
  }

  /**
   * Adds `delta`, or decrements if it is less than 0; the value afterwards, as known in the data center that was asked.
   *
   * Rejects with `NoRights` if the bounds do not allow it with the rights that the scope can use. Sent again at the same region also where the first try may have been made:
   * the update has a name, under which it is made once.
   */
  async add(delta: number): Promise<number> {
    const [value] = await this.#session.addAll([[this.#key, delta]], this.#scope);
    return value ?? 0;
  }

  /** Takes `amount` from this counter and adds it to the one at `to`, of the same partition: both or neither. Both values afterwards. */
  async transfer(to: Bytes, amount: number): Promise<[number, number]> {
    if (!(amount >= 1)) throw new errors.Refused(`${amount} cannot be transferred; the amount is at least 1`);
    const [here = 0, there = 0] = await this.#session.addAll([[this.#key, -amount], [to, amount]], this.#scope);
    return [here, there];
  }

  /** The counter as it is known in the data center that is asked. */
  async look(): Promise<CounterView> {
    return view(await this.#session.one(false, "RHEO", "COUNTER", "GET", this.#key));
  }

  /** Moves `amount` rights of the data center that is asked to the one called `to`. */
  async moveRights(to: string | number, direction: "down" | "up", amount: number): Promise<CounterView> {
    return view(await this.#session.one(true, "RHEO", "COUNTER", "MOVE", this.#key, to, amount, direction));
  }

  /** Takes over the rights of a data center that is gone for ever. */
  async reclaim(gone: string | number): Promise<CounterView> {
    return view(await this.#session.one(true, "RHEO", "COUNTER", "RECLAIM", this.#key, gone));
  }
}

function view(reply: unknown): CounterView {
  const said = mapOf(reply);
  const rights = [...mapOf(said.get("rights"))].map(([dataCenter, of]) => {
    const right = mapOf(of);
    return { dataCenter, down: numberOf(right.get("down")), up: numberOf(right.get("up")), standing: textOf(right.get("standing")) ?? "" };
  });
  return {
    value: numberOf(said.get("value")) ?? 0,
    lower: numberOf(said.get("min")),
    upper: numberOf(said.get("max")),
    rights,
    level: textOf(said.get("level")),
    stalenessMs: numberOf(said.get("staleness_ms")),
  };
}
