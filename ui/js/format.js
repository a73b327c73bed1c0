// Numbers, times and bytes for people.

/** Milliseconds in the one unit that fits. */
export function span(ms) {
  if (ms === null || ms === undefined) return '?';
  if (ms === 0) return '0 ms';
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

/** Bytes with a binary unit. */
export function bytes(count) {
  let [left, unit] = [count, 0];
  while (left >= 1024 && unit < 4) [left, unit] = [left / 1024, unit + 1];
  return `${unit && left < 100 ? left.toFixed(1) : Math.round(left)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit]}`;
}

/** A count with thin spaces. */
export const count = (number) => Math.round(number).toString().replace(/\B(?=(\d{3})+(?!\d))/g, ' ');

/** A number with two or three digits that say something. */
export function short(number) {
  if (number >= 10_000_000) return `${(number / 1e6).toFixed(0)}M`;
  if (number >= 1_000_000) return `${(number / 1e6).toFixed(1)}M`;
  if (number >= 10_000) return `${(number / 1e3).toFixed(0)}k`;
  if (number >= 1_000) return `${(number / 1e3).toFixed(1)}k`;
  return number >= 10 || Number.isInteger(number) ? String(Math.round(number)) : number.toFixed(1);
}

/** A time of day in UTC, as the command line tells it. */
export const time = (ms) => new Date(ms).toISOString().slice(11, 23);

/** Words with times of day in place of timestamps such as `1795219506007.3`. */
export const readable = (text) => text.replace(/\b(\d{13})\.\d+\b/g, (_, ms) => time(Number(ms)));

/** What a page was told of a key or value; anything in it is shown as text. */
export const shown = (value) => (value ? value.text + (value.cut ? ` … (${bytes(value.bytes)})` : '') : '');

/** What was typed as the hexadecimal digits of its bytes: `\xNN`, `\n`, `\\` and `\u{N}` stand for what they say. */
export function keyOf(typed) {
  const out = [];
  const encoder = new TextEncoder();
  for (let at = 0; at < typed.length;) {
    const escape = /^\\(x[0-9a-fA-F]{2}|n|\\|u\{[0-9a-fA-F]{1,6}\})/.exec(typed.slice(at, at + 12));
    const code = escape?.[1];
    if (code?.startsWith('x')) out.push(parseInt(code.slice(1), 16));
    else if (code === 'n') out.push(10);
    else if (code === '\\') out.push(92);
    else if (code && parseInt(code.slice(2), 16) < 0x110000) out.push(...encoder.encode(String.fromCodePoint(parseInt(code.slice(2), 16))));
    else {
      const character = String.fromCodePoint(typed.codePointAt(at));
      out.push(...encoder.encode(character));
      at += character.length;
      continue;
    }
    at += escape[0].length;
  }
  return out.map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
