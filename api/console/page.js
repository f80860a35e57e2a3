// What most rooms are made of: a page with a heading, links, dialogs, forms whose problems stand at their fields. Knows no
// room.

import { el, notice } from "./dom.js";

/** A page with its heading, which gets the focus when the room was entered by hand. */
export function page(root, { title, moveFocus, back }, ...content) {
  const heading = el("h1", { tabIndex: -1 }, title);
  root.append(el("div.page", {}, back, heading, ...content));
  if (moveFocus) heading.focus();
  return heading;
}

/** A link to a place of the console. */
export function place(context, address, ...text) {
  return el("a", { href: address, onclick: context.follow }, ...text);
}

/** `/runs/<id>` and the like, whatever the id is. */
export function address(room, id, query = "") {
  return `/${room}/${encodeURIComponent(id)}${query}`;
}

/** Shows what the service tells only once, such as a key. */
export function secret(title, hint, text) {
  const copy = navigator.clipboard && el("button", {
    type: "button",
    async onclick() {
      await navigator.clipboard.writeText(text).then(() => { copy.textContent = "Copied"; }, () => { copy.textContent = "Not allowed here"; });
    },
  }, "Copy");
  return dialog(title, el("p.hint", {}, hint), el("p.secret", {}, el("code", {}, text)), copy);
}

/** Does something at once, and says how it went. */
export async function attempt({ service, notice: told }, what, done) {
  try {
    await what();
    if (done) told(done);
  } catch (error) {
    told(service.isAway(error) ? "No answer came; look whether it was done." : error.message, service.isKept(error) ? undefined : "bad");
  }
}

/**
 * A form in a dialog: `fields` are elements of `field`, `submit` sends and returns what is to be done when it went well.
 * What the service refuses stands at its field.
 */
export function ask(title, { hint, fields, verb, tone = "primary", submit }) {
  const button = el(`button.${tone}`, { type: "submit" }, verb);
  const form = el("form", {
    "aria-label": title,
    async onsubmit(event) {
      event.preventDefault();
      button.disabled = true;
      try {
        const done = await submit();
        box.close();
        done?.();
      } catch (error) {
        if (error.status !== 202) return tell(form, error);
        box.close();
        notice(error.message);
      } finally {
        button.disabled = false;
      }
    },
  }, fields, el("p.problem", { role: "alert" }), button);
  const box = dialog(title, hint && el("p.hint", {}, hint), form);
  form.querySelector("input, select, textarea")?.focus();
  return box;
}

/** A labelled control; `pointer` is where the service names it in its problems. */
export function field(label, control, { hint, pointer } = {}) {
  const hintId = hint && `${control.id}-hint`;
  if (hint) control.setAttribute("aria-describedby", hintId);
  if (pointer) control.dataset.pointer = pointer;
  return el("div.field", {}, el("label", { htmlFor: control.id }, label), control, hint && el("p.hint", { id: hintId }, hint));
}

/** Shows what the service refused: at the field that it is about, else above them all. */
export function tell(form, error, away = "No answer came, so it is not known whether this was done. Look before you try again.") {
  clear(form);
  const general = form.querySelector(".problem");
  const rest = [];
  if (error.status) {
    const errors = error.body?.errors?.length ? error.body.errors : [{ pointer: "", message: error.message }];
    for (const { pointer, message } of errors) {
      const control = [...form.querySelectorAll("[data-pointer]")].filter((each) => `${pointer}/`.startsWith(`${each.dataset.pointer}/`))
        .sort((one, other) => other.dataset.pointer.length - one.dataset.pointer.length)[0];
      if (control) {
        control.setAttribute("aria-invalid", "true");
        control.closest(".field").append(el("p.wrong", {}, message));
      } else rest.push(pointer ? `${pointer}: ${message}` : message);
    }
  } else rest.push(away);
  general.textContent = rest.join("; ");
  form.querySelector("[aria-invalid]")?.focus();
}

export function clear(form) {
  form.querySelector(".problem").textContent = "";
  for (const each of form.querySelectorAll(".wrong")) each.remove();
  for (const each of form.querySelectorAll("[aria-invalid]")) each.removeAttribute("aria-invalid");
}

/** A dialog over the page, which its buttons close; `content` comes before "Close". */
export function dialog(title, ...content) {
  const box = el("dialog.card", { "aria-label": title, onclose: () => box.remove() },
    el("h2", {}, title), ...content,
    el("p.closing", {}, el("button.quiet", { type: "button", onclick: () => box.close() }, "Close")));
  document.body.append(box);
  box.showModal();
  return box;
}
