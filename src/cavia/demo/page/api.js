// Questions to the server. Only the last of several questions that wait is asked.

const trouble = document.getElementById("trouble");

export async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(`api/${path}`, options);
  } catch {
    throw say("The server does not answer; is `cavia demo` still running?");
  }
  const content = await answer.json().catch(() => ({ detail: `the server answered ${answer.status}` }));
  if (!answer.ok) throw say(content.detail);
  trouble.hidden = true;
  return content;
}

function say(message) {
  trouble.textContent = message;
  trouble.hidden = false;
  return new Error(message);
}

/** A function that works on its newest arguments only: what comes while it is busy replaces what waits. */
export function latest(work) {
  let busy = false, waiting = null;
  return async function run(...given) {
    waiting = given;
    if (busy) return;
    busy = true;
    while (waiting) {
      const next = waiting;
      waiting = null;
      await work(...next).catch((error) => console.warn(error.message));
    }
    busy = false;
  };
}
