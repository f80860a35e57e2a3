// Keeps what is on the page fresh: follows the one live stream, and asks again every few seconds while there is none.
// Decides how fresh the page is: `connecting`, `live`, `polling` (no stream, but answers) or `away` (no answers).

import { headers, isAway, lost } from "./service.js";

const LIVE_PAUSE = 20_000;
const POLL_PAUSE = 3_000;
const COALESCE = 150;
/** The service says something at least every 4 seconds; a stream more silent than this is dead. */
const SILENCE = 9_000;

/** One for a session, which ends with `signal`; `setState` is told how fresh the page is. */
export function makeFreshness(setState, signal) {
  const kept = new Set();
  let streaming = null;

  function tell() {
    if (signal.aborted) return;
    const answers = [...kept].map((each) => each.answering);
    if (!answers.length) setState(null);
    else if (answers.includes(false)) setState("away");
    else if (streaming === null || answers.includes(null)) setState("connecting");
    else setState(streaming ? "live" : "polling");
  }

  /**
   * Calls `load()` now, whenever the stream tells of one of `topics`, and every so often; never twice at once, and for
   * news not more often than every `pause` milliseconds. Ends with `ended`. Returns a function that asks for a load soon.
   */
  function keep(load, topics, ended, pause = COALESCE) {
    const each = { answering: null, topics, soon: () => schedule(pause) };
    let running = false;
    let wanted = false;
    let timer = null;
    let due = Number.POSITIVE_INFINITY;

    function schedule(wait) {
      if (ended.aborted) return;
      const at = performance.now() + wait;
      if (running) wanted ||= wait <= pause;
      else if (at < due) {
        clearTimeout(timer);
        due = at;
        timer = setTimeout(turn, wait);
      }
    }

    async function turn() {
      due = Number.POSITIVE_INFINITY;
      running = true;
      wanted = false;
      try {
        await load();
        each.answering = true;
      } catch (error) {
        if (!ended.aborted) each.answering = !isAway(error);
      }
      running = false;
      tell();
      schedule(wanted ? pause : each.answering && streaming ? LIVE_PAUSE : POLL_PAUSE);
    }

    kept.add(each);
    ended.addEventListener("abort", () => {
      clearTimeout(timer);
      kept.delete(each);
    });
    schedule(0);
    tell();
    return each.soon;
  }

  const soon = (topic) => {
    for (const each of kept) if (!topic || each.topics.includes(topic)) each.soon();
  };
  document.addEventListener("visibilitychange", () => document.hidden || soon(), { signal });
  addEventListener("online", () => soon(), { signal });
  followStream(soon, (on) => {
    if (on !== streaming) soon();
    streaming = on;
    tell();
  }, signal);
  return keep;
}

/** `told(topic)` for each event of the stream. */
async function followStream(told, setStreaming, signal) {
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
        const topics = lines.filter((line) => line.startsWith("event:")).map((line) => line.slice(6).trim());
        for (const topic of new Set(topics)) told(topic);
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
