// Asking the node that served this page. Nobody else is asked.

export class Refused extends Error {
  constructor(status, why) {
    super(why);
    this.status = status;
  }
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(`/api/${path}`, { ...options, signal: AbortSignal.timeout(20_000), credentials: 'same-origin', redirect: 'error' });
  } catch {
    throw new Refused(0, 'the node does not answer');
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, body.error ?? `status ${response.status}`);
  return body;
}

export const get = (path) => ask(path, {});
export const post = (path, body) => ask(path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });

/** Does `step` again and again, `every` milliseconds after it has ended, while the page is seen; says how to stop. */
export function repeat(every, step) {
  let stopped = false;
  let timer = 0;
  const turn = async () => {
    clearTimeout(timer);
    if (stopped || document.hidden) return;
    try {
      await step();
    } finally {
      if (!stopped) timer = setTimeout(turn, every);
    }
  };
  const seen = () => { if (!document.hidden) turn(); };
  document.addEventListener('visibilitychange', seen);
  turn();
  return () => {
    stopped = true;
    clearTimeout(timer);
    document.removeEventListener('visibilitychange', seen);
  };
}
