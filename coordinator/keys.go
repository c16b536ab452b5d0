package coordinator

import (
	"fmt"
	"net/url"

	"tranche/allocation"
)

// The layout of the store. Every value is one JSON document with a format number.
//
//	/tranche/deployment                        id of the deployment, history, configuration number
//	/tranche/history                           which line of descent this etcd is of, and whether it is frozen
//	/tranche/budgets/NAME                      one budget: its declaration, version, and how far its terms are opened
//	/tranche/ledgers/NAME/TERM                 allocation.Ledger of one term (TERM: start, 20 digits, Unix seconds + 2^62)
//	/tranche/closings/NAME/TERM                a closed term
//	/tranche/regions/REGION                    one region: incarnation, home, draining
//	/tranche/contacts/REGION                   last contact: when, clock, closed_before, marks
//	/tranche/statements/REGION/SHARD           what the owner last stated of a shard (3 digits)
//	/tranche/formers/REGION/SHARD/INCARNATION  what an incarnation that was replaced last stated of it
//	/tranche/rebalances/ID                     a manual rebalance
//	/tranche/plans/ID                          rebalances of all budgets that a selector found
//	/tranche/strandings/REGION/SHARD           the history of what was stranded; with writeoffs/, compensations/ and
//	                                           refusals/ see stranded_docs.go
//	/tranche/overrides/ID                      a temporary raise of a budget
//	/tranche/documents/KIND/NAME               configuration other than budgets: see documents_carried.go
//	/tranche/tokens/NAME                       a credential: role, hash
//	/tranche/receipts/REGION/KEY               a key that a region signs receipts with
//	/tranche/marks/WRITER                      the mark of one coordinator process
//	/tranche/vouches/WRITER                    a coordinator without memory asks, and one with memory answers
//	/tranche/feed, events/, told/              the event feed: see events.go
//	/tranche/webhook                           how far the webhook is
//	/tranche/audit/TIME-RANDOM                 one act (time: 20 digits, Unix microseconds)
//
// NAME is path-escaped, so that a budget's slashes cannot be taken for the layout's.
const (
	Root            = "/tranche/"
	deploymentKey   = Root + "deployment"
	historyKey      = Root + "history"
	budgetPrefix    = Root + "budgets/"
	ledgerPrefix    = Root + "ledgers/"
	closingPrefix   = Root + "closings/"
	regionPrefix    = Root + "regions/"
	contactPrefix   = Root + "contacts/"
	statementPrefix = Root + "statements/"
	rebalancePrefix = Root + "rebalances/"
	planPrefix      = Root + "plans/"
	tokenPrefix     = Root + "tokens/"
	markPrefix      = Root + "marks/"
	vouchPrefix     = Root + "vouches/"
	auditPrefix     = Root + "audit/"
)

func budgetKey(name string) string { return budgetPrefix + url.PathEscape(name) }

func ledgerKey(name string, term allocation.Instant) string {
	return fmt.Sprintf("%s%s/%020d", ledgerPrefix, url.PathEscape(name), int64(term)+1<<62)
}

func closingKey(name string, term allocation.Instant) string {
	return fmt.Sprintf("%s%s/%020d", closingPrefix, url.PathEscape(name), int64(term)+1<<62)
}

func statementKey(region string, shard int) string {
	return fmt.Sprintf("%s%s/%03d", statementPrefix, region, shard)
}
