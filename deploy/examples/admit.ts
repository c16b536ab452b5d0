// Ask a node of Tranche from TypeScript, with what Node.js 18 and later have.
//
//   node admit.ts http://127.0.0.1:7080 acme        (Node.js 22.18 and later; earlier: through a compiler)
//
// TRANCHE_NODE_TOKEN holds the gateway's token, where the node asks for one. Prints what became of it, and ends with 0 (served),
// 1 (refused, or called wrongly) or 2 (nobody decided).
import { randomUUID } from "node:crypto";

type Answer = { decision?: string; reason: string; region?: string; state?: string };
type Decided = { status: number; answer: Answer };

const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

// The decision, under one admission id for all tries; null if nobody decided.
async function ask(node: string, path: string, id: string, body: object, tries = 5, patience = 5000): Promise<Decided | null> {
  const until = Date.now() + patience;
  const token = process.env.TRANCHE_NODE_TOKEN;
  for (let n = 0; n < tries; n++) {
    let after = 0;
    try {
      const response = await fetch(node + path, {
        method: "POST",
        body: JSON.stringify(body),
        headers: { "Content-Type": "application/json", "Admission-Id": JSON.stringify(id), ...(token ? { Authorization: `Bearer ${token}` } : {}) },
        redirect: "error",
        signal: AbortSignal.timeout(2000),
      });
      after = 1000 * Number(response.headers.get("Retry-After") ?? 0);
      const answer: Answer = await response.json();
      if (response.status < 500) return { status: response.status, answer };
    } catch {
      // It may have been charged: the same id finds out.
    }
    const wait = Math.max(after, Math.min(2000, 50 * 2 ** n) * (0.5 + Math.random() / 2));
    if (Date.now() + wait > until) return null;
    await sleep(wait);
  }
  return null;
}

// Only what is known to be an admission is one.
function admitted(d: Decided | null): d is Decided {
  return d !== null && d.status === 200 && d.answer.decision === "admitted" && d.answer.reason === "allow";
}

async function main(node: string, tenant: string): Promise<number> {
  const id: string = randomUUID();
  const decided = await ask(node, "/v1/admit", id, { op: "reserve", labels: { tenant }, lifetime: "2m" });
  if (!admitted(decided)) {
    console.log(decided === null ? "nobody decided" : `refused: ${decided.answer.reason}`);
    return decided === null ? 2 : 1;
  }
  // … the work itself; then its true costs …
  const settled = await ask(node, "/v1/settle", id, { tenant, costs: {} });
  console.log(`served in ${decided.answer.region}, ${settled?.answer.state ?? "not settled"}`);
  return 0;
}

if (process.argv.length !== 4 || !/^https?:/.test(process.argv[2])) {
  console.error("usage: node admit.ts NODE TENANT, as in: node admit.ts http://127.0.0.1:7080 acme");
  console.error("TRANCHE_NODE_TOKEN holds the gateway's token, where the node asks for one");
  process.exit(1);
}
process.exitCode = await main(process.argv[2].replace(/\/$/, ""), process.argv[3]);
