// Keeps a room fresh: follows the live stream, and asks again every few seconds while there is none. Decides how fresh
// the page is: `connecting`, `live`, `polling` (no stream, but answers) or `away` (no answers).

import { headers, isAway, lost } from "./service.js";

const LIVE_PAUSE = 20_000;
const POLL_PAUSE = 3_000;
const COALESCE = 150;
/** The service says something at least every 15 seconds; a stream more silent than this is dead. */
const SILENCE = 40_000;

/**
 * Calls `load()` now, whenever the stream tells of one of `topics`, and every so often; never twice at once. Ends with
 * `signal`. Returns a function that asks for a load soon.
 */
export function keepFresh(load, topics, setState, signal) {
  let streaming = null;
  let answering = null;
  let running = false;
  let wanted = false;
  let timer = null;
  let due = Number.POSITIVE_INFINITY;

  function tell() {
    if (signal.aborted) return;
    if (answering === false) setState("away");
    else if (streaming === null || answering === null) setState("connecting");
    else setState(streaming ? "live" : "polling");
  }

  function schedule(pause) {
    if (signal.aborted) return;
    const at = performance.now() + pause;
    if (running) wanted ||= pause <= COALESCE;
    else if (at < due) {
      clearTimeout(timer);
      due = at;
      timer = setTimeout(turn, pause);
    }
  }

  async function turn() {
    due = Number.POSITIVE_INFINITY;
    running = true;
    wanted = false;
    try {
      await load();
      answering = true;
    } catch (error) {
      if (!signal.aborted) answering = !isAway(error);
    }
    running = false;
    tell();
    schedule(wanted ? COALESCE : answering && streaming ? LIVE_PAUSE : POLL_PAUSE);
  }

  const soon = () => schedule(COALESCE);
  const back = () => !document.hidden && soon();
  document.addEventListener("visibilitychange", back, { signal });
  addEventListener("online", soon, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  schedule(0);
  followStream(topics, soon, (on) => {
    if (on !== streaming) soon();
    streaming = on;
    tell();
  }, signal);
  return soon;
}

async function followStream(topics, changed, setStreaming, signal) {
  let pause = 500;
  while (!signal.aborted) {
    const silent = new AbortController();
    let watch = null;
    const alive = () => {
      clearTimeout(watch);
      watch = setTimeout(() => silent.abort(), SILENCE);
    };
    try {
      alive();
      const answer = await fetch("/v1/stream", {
        headers: headers({ Accept: "text/event-stream" }),
        signal: AbortSignal.any([signal, silent.signal]),
        cache: "no-store",
        credentials: "omit",
      });
      if (answer.status === 401) return lost();
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      setStreaming(true);
      pause = 500;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        alive();
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        if (lines.some((line) => topics.includes(line.replace(/^event: ?/, "")))) changed();
      }
    } catch {
      // Whatever it was, asking every few seconds goes on, and so does trying.
    }
    clearTimeout(watch);
    if (signal.aborted) return undefined;
    setStreaming(false);
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, 10_000);
  }
  return undefined;
}
