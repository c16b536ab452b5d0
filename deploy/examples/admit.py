"""Ask a node of Tranche from Python, with the standard library.

    python3 admit.py http://127.0.0.1:7080 acme

TRANCHE_NODE_TOKEN holds the gateway's token, where the node asks for one. Prints what became of it, and ends with 0 (served),
1 (refused, or called wrongly) or 2 (nobody decided).
"""
import json
import os
import random
import sys
import time
import urllib.error
import urllib.request
import uuid


def call(node, path, admission_id, body, timeout=2.0):
    """One try: the answer's status, Retry-After in seconds, and body. OSError or ValueError: no answer."""
    request = urllib.request.Request(node + path, json.dumps(body).encode(), {
        "Content-Type": "application/json",
        "Admission-Id": json.dumps(admission_id),
        **({"Authorization": "Bearer " + os.environ["TRANCHE_NODE_TOKEN"]} if "TRANCHE_NODE_TOKEN" in os.environ else {}),
    })
    try:
        answer = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as refused:
        answer = refused
    with answer:
        return answer.status, int(answer.headers.get("Retry-After") or 0), json.loads(answer.read())


def ask(node, path, body, admission_id, tries=5, patience=5.0):
    """The decision, under one admission id for all tries; None if nobody decided."""
    until = time.monotonic() + patience
    for n in range(tries):
        after = 0
        try:
            status, after, answer = call(node, path, admission_id, body)
            if status < 500:
                return status, answer
        except (OSError, ValueError):
            pass  # it may have been charged: the same id finds out
        wait = max(after, min(2.0, 0.05 * 2**n) * random.uniform(0.5, 1))
        if time.monotonic() + wait > until:
            break
        time.sleep(wait)
    return None


def admitted(decision):
    """Only what is known to be an admission is one."""
    return decision is not None and decision[0] == 200 and decision[1].get("decision") == "admitted" and decision[1].get("reason") == "allow"


def main(node, tenant):
    admission_id = str(uuid.uuid4())
    decision = ask(node, "/v1/admit", {"op": "reserve", "labels": {"tenant": tenant}, "lifetime": "2m"}, admission_id)
    if not admitted(decision):
        print("nobody decided" if decision is None else f"refused: {decision[1].get('reason')}")
        return 2 if decision is None else 1
    # … the work itself; then its true costs …
    settled = ask(node, "/v1/settle", {"tenant": tenant, "costs": {}}, admission_id)
    print(f"served in {decision[1]['region']}, {settled[1]['state'] if settled else 'not settled'}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[1].startswith(("http://", "https://")):
        sys.exit("usage: python3 admit.py NODE TENANT, as in: python3 admit.py http://127.0.0.1:7080 acme\n"
                 "TRANCHE_NODE_TOKEN holds the gateway's token, where the node asks for one")
    sys.exit(main(sys.argv[1].rstrip("/"), sys.argv[2]))
