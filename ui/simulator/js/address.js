// A run in the address: what is behind the `#` is all that a run depends on, so whoever opens it sees the same.

const WORDS = ['scenario', 'variant', 'seed', 'protocol', 'profile', 'planted', 'held_to', 'plan'];
const LONGEST = 100_000;

/** `12d` drops message 12, `15w250` lets message 15 wait for 250 ms. */
const touchText = ([number, done]) => (done === 'drop' ? `${number}d` : `${number}w${done}`);

function touchOf(text) {
  const found = /^(\d{1,9})(?:d|w(\d{1,5}(?:\.\d{1,3})?))$/.exec(text);
  if (!found) throw new Error(`The address has “${text.slice(0, 40)}” for a message: 12d drops message 12, 15w250 lets message 15 wait for 250 ms.`);
  return [Number(found[1]), found[2] === undefined ? 'drop' : Number(found[2])];
}

/** What stands behind the `#`: the request, and the step that is looked at. Throws words for who reads the page. */
export function read(hash) {
  const text = hash.replace(/^#/, '');
  if (text.length > LONGEST) throw new Error('The address is too long for a run.');
  const given = new URLSearchParams(text);
  const request = {};
  for (const [name, value] of given) {
    if (WORDS.includes(name)) request[name] = value;
    else if (name === 'counters') request.counters = value === '1';
    else if (name === 'option') (request.options ??= []).push(value);
    else if (name === 'touch') request.touches = value.split('_').filter(Boolean).map(touchOf);
    else if (name !== 'step') throw new Error(`The address has “${name.slice(0, 40)}”, which is nothing of a run.`);
  }
  if (!request.scenario && request.plan === undefined && request.seed === undefined) return { request: null, step: null };
  const step = /^\d{1,7}$/.test(given.get('step') ?? '') ? Number(given.get('step')) : null;
  return { request, step };
}

/** The other way. */
export function write(request, step) {
  const out = new URLSearchParams();
  for (const name of WORDS) if (request[name]) out.set(name, request[name]);
  if (request.counters) out.set('counters', '1');
  for (const option of request.options ?? []) out.append('option', option);
  if (request.touches?.length) out.set('touch', request.touches.map(touchText).join('_'));
  if (step !== null) out.set('step', String(step));
  return `#${out}`;
}
