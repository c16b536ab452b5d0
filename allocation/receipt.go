package allocation

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Receipt is what a node gives with a refusal, so that it can be explained long after, though nobody stored it: what was
// refused, by which version and generation of which budget, why, when and where. It is text that its node signed:
//
//	tr1.FIELDS.SIGNATURE     FIELDS, 16 bytes of HMAC-SHA256: base64url
//
// It opens nothing: whoever holds it can show it, and no more. It names neither tenant nor caller nor key. A caller is not
// to see a node's evidence, so only the deployment, the region and the name of the key can be read; the other fields are
// encrypted (AES-CTR under the signature, as in SIV), and who has the region's receipt key reads them and tells that they
// are true.
type Receipt struct {
	Deployment string
	Region     string
	Key        string // the id of the ReceiptKey that signed it
	Node       string // empty: it was longer than MaxReceiptText
	Decision   string // a random name of this answer
	Admission  string // the admission id; empty: there was none, or it was longer than MaxReceiptText
	At         int64  // when it was decided, Unix microseconds
	Op         Op
	Reason     Reason
	Upstream   Upstream // what a gateway said that the upstream did with an admitted request; empty: nothing was said
	Priority   Priority

	// The budget that refused; empty: no budget did.
	Budget     string
	Instance   string // empty: none, or it was longer than MaxReceiptText
	Unit       string
	Version    int64
	Period     Instant
	Until      Instant // 0: no opened term held the instant
	Generation int64
	Limit      int64
	Share      int64
	Requested  int64
	Remaining  int64

	Config         int64
	LedgerRevision int64
	ObservedAt     int64 // when the coordinator had read its ledger, Unix microseconds; 0: never
}

// Bounds of receipts. A header of a gateway holds one.
const (
	MaxReceiptText = 64 // bytes of a node's name, an admission id, an instance
	MaxReceipt     = 2048
)

const (
	receiptTag   = "tr1"
	receiptMAC   = 16
	receiptInfo  = "tranche receipt 1\n"
	receiptIDLen = 4
)

// receiptText is strict: one receipt has one text.
var receiptText = base64.RawURLEncoding.Strict()

// ReceiptKey signs the receipts of one region. Both sides derive it from what they share: the node from its region's token,
// the coordinator from the token's hash, which is all that it keeps. So nothing is handed out, a region cannot sign for
// another one, and neither the hash nor the token is found from it.
type ReceiptKey struct {
	Deployment, Region, ID string
	secret                 [sha256.Size]byte
	mac, cover             [sha256.Size]byte // of the secret: one signs, the other encrypts
}

// NewReceiptKey derives the key from the SHA-256 of the region's token, in hex.
func NewReceiptKey(deployment, region, tokenHash string) ReceiptKey {
	mac := hmac.New(sha256.New, []byte(tokenHash))
	mac.Write([]byte(receiptInfo + deployment + "\n" + region))
	return receiptKey(deployment, region, [sha256.Size]byte(mac.Sum(nil)))
}

// ReceiptKeyOf derives the key from the region's token.
func ReceiptKeyOf(deployment, region, token string) ReceiptKey {
	sum := sha256.Sum256([]byte(token))
	return NewReceiptKey(deployment, region, hex.EncodeToString(sum[:]))
}

// StoredReceiptKey is a key as Stored told it.
func StoredReceiptKey(deployment, region, stored string) (ReceiptKey, error) {
	b, err := hex.DecodeString(stored)
	if err != nil || len(b) != sha256.Size {
		return ReceiptKey{}, fmt.Errorf("the receipt key of region %s is not %d bytes in hex", region, sha256.Size)
	}
	return receiptKey(deployment, region, [sha256.Size]byte(b)), nil
}

func receiptKey(deployment, region string, secret [sha256.Size]byte) ReceiptKey {
	id := sha256.Sum256(append([]byte(receiptInfo+"id\n"), secret[:]...))
	k := ReceiptKey{Deployment: deployment, Region: region, ID: hex.EncodeToString(id[:receiptIDLen]), secret: secret}
	k.mac = sha256.Sum256(append([]byte(receiptInfo+"sign\n"), secret[:]...))
	k.cover = sha256.Sum256(append([]byte(receiptInfo+"cover\n"), secret[:]...))
	return k
}

// Stored is the key as a coordinator keeps it, to check what was signed before the token was replaced.
func (k ReceiptKey) Stored() string { return hex.EncodeToString(k.secret[:]) }

// String never tells the secret.
func (k ReceiptKey) String() string { return "receipt key " + k.ID + " of " + k.Region }

// GoString never tells the secret.
func (k ReceiptKey) GoString() string { return k.String() }

func (k ReceiptKey) sign(head, fields []byte) []byte {
	mac := hmac.New(sha256.New, k.mac[:])
	mac.Write([]byte(receiptInfo))
	mac.Write(head)
	mac.Write(fields)
	return mac.Sum(nil)[:receiptMAC]
}

// covered encrypts fields under their signature, or decrypts them.
func (k ReceiptKey) covered(fields, signature []byte) []byte {
	block, err := aes.NewCipher(k.cover[:])
	if err != nil {
		panic("a key of 32 bytes: " + err.Error())
	}
	out := make([]byte, len(fields))
	cipher.NewCTR(block, signature).XORKeyStream(out, fields)
	return out
}

// Sign writes a receipt. The deployment, the region and the key are the signer's own.
func (k ReceiptKey) Sign(r Receipt) string {
	r.Deployment, r.Region, r.Key = k.Deployment, k.Region, k.ID
	for _, text := range []*string{&r.Node, &r.Admission, &r.Instance} {
		if len(*text) > MaxReceiptText {
			*text = ""
		}
	}
	var head, w receiptWriter
	r.whose(&head)
	r.each(&w)
	// The length in front tells a receipt that was cut from one that was changed.
	head.out = append(binary.AppendUvarint(nil, uint64(len(head.out)+len(w.out))), head.out...)
	signature := k.sign(head.out, w.out)
	return receiptTag + "." + receiptText.EncodeToString(append(head.out, k.covered(w.out, signature)...)) + "." + receiptText.EncodeToString(signature)
}

// SealedReceipt is a receipt of which can be read whose it says that it is.
type SealedReceipt struct {
	Deployment, Region, Key string
	head, fields, signature []byte
}

// Open reads a receipt that this key signed. False: it did not, or it was changed.
func (k ReceiptKey) Open(sealed SealedReceipt) (Receipt, bool) {
	if len(sealed.signature) != receiptMAC {
		return Receipt{}, false
	}
	fields := k.covered(sealed.fields, sealed.signature)
	if !hmac.Equal(sealed.signature, k.sign(sealed.head, fields)) {
		return Receipt{}, false
	}
	r := Receipt{Deployment: sealed.Deployment, Region: sealed.Region, Key: sealed.Key}
	reader := receiptReader{in: fields}
	r.each(&reader)
	return r, !reader.wrong && len(reader.in) == 0
}

// Why a text is not read as a receipt.
var (
	ErrNoReceipt     = errors.New("this is not a receipt: " + receiptTag + ". is how one begins")
	ErrReceiptCut    = errors.New("a part of the receipt is missing: copy all of it, to the last character")
	ErrReceiptBroken = errors.New("the receipt holds what none can hold: it was changed")
	ErrReceiptNewer  = errors.New("the receipt is of a version that this program does not know: upgrade it")
)

// plainReceipt is the text without what a terminal or a mail puts in between.
func plainReceipt(text string) string {
	return strings.Join(strings.Fields(text), "")
}

// ParseReceipt reads whose a receipt says that it is. It is not to be believed before that key opens it.
func ParseReceipt(text string) (SealedReceipt, error) {
	text = plainReceipt(text)
	parts := strings.Split(text, ".")
	switch version, isReceipt := strings.CutPrefix(parts[0], "tr"); {
	case len(text) > MaxReceipt || !isReceipt || version == "" || strings.Trim(version, "0123456789") != "":
		return SealedReceipt{}, ErrNoReceipt
	case parts[0] != receiptTag:
		return SealedReceipt{}, ErrReceiptNewer
	case len(parts) < 3:
		return SealedReceipt{}, ErrReceiptCut
	case len(parts) > 3:
		return SealedReceipt{}, ErrReceiptBroken
	}
	fields, err := receiptText.DecodeString(parts[1])
	if err != nil {
		return SealedReceipt{}, ErrReceiptBroken
	}
	length, n := binary.Uvarint(fields)
	switch missing := receiptText.EncodedLen(receiptMAC) - len(parts[2]); {
	case n <= 0 || length > MaxReceipt || missing < 0 || int(length) < len(fields)-n:
		return SealedReceipt{}, ErrReceiptBroken
	case missing > 0 || int(length) > len(fields)-n:
		return SealedReceipt{}, ErrReceiptCut
	}
	signature, err := receiptText.DecodeString(parts[2])
	var r Receipt
	reader := receiptReader{in: fields[n:]}
	if r.whose(&reader); reader.wrong || err != nil {
		return SealedReceipt{}, ErrReceiptBroken
	}
	head := len(fields) - len(reader.in)
	return SealedReceipt{
		Deployment: r.Deployment, Region: r.Region, Key: r.Key, head: fields[:head], fields: fields[head:], signature: signature,
	}, nil
}

// whose are the fields that anybody can read.
func (r *Receipt) whose(f receiptField) {
	f.text(&r.Deployment)
	f.text(&r.Region)
	f.text(&r.Key)
}

// each goes through the other fields in their order, which is the format: another order, or one more, is another version.
func (r *Receipt) each(f receiptField) {
	f.text(&r.Node)
	f.text(&r.Decision)
	f.text(&r.Admission)
	f.number(&r.At)
	f.text((*string)(&r.Op))
	f.text((*string)(&r.Reason))
	f.text((*string)(&r.Upstream))
	f.text((*string)(&r.Priority))
	f.text(&r.Budget)
	f.text(&r.Instance)
	f.text(&r.Unit)
	f.number(&r.Version)
	f.number((*int64)(&r.Period))
	f.number((*int64)(&r.Until))
	f.number(&r.Generation)
	f.number(&r.Limit)
	f.number(&r.Share)
	f.number(&r.Requested)
	f.number(&r.Remaining)
	f.number(&r.Config)
	f.number(&r.LedgerRevision)
	f.number(&r.ObservedAt)
}

type receiptField interface {
	text(*string)
	number(*int64)
}

type receiptWriter struct{ out []byte }

func (w *receiptWriter) text(s *string) {
	w.out = append(binary.AppendUvarint(w.out, uint64(len(*s))), *s...)
}
func (w *receiptWriter) number(n *int64) { w.out = binary.AppendVarint(w.out, *n) }

type receiptReader struct {
	in    []byte
	wrong bool
}

func (r *receiptReader) text(s *string) {
	length, n := binary.Uvarint(r.in)
	if n <= 0 || length > uint64(len(r.in)-n) {
		r.wrong, r.in = true, nil
		return
	}
	*s, r.in = string(r.in[n:n+int(length)]), r.in[n+int(length):]
}

func (r *receiptReader) number(to *int64) {
	value, n := binary.Varint(r.in)
	if n <= 0 {
		r.wrong, r.in = true, nil
		return
	}
	*to, r.in = value, r.in[n:]
}

// NewReceipt is what a decision's receipt says of it. Decision is a random name; a receipt is of a refusal, or of what an
// upstream did with an admitted request.
func NewReceipt(d *Decision, decision string) Receipt {
	r := Receipt{
		Node: d.Evidence.Node, Decision: decision, Admission: d.Key.ID, At: d.At, Op: d.Op, Reason: d.Reason,
		Priority: d.Evidence.Priority, Config: d.Evidence.Config, LedgerRevision: d.Evidence.LedgerRevision, ObservedAt: d.Evidence.ObservedAt,
	}
	r.Budget, _, _ = strings.Cut(d.Blames, " [") // also where the decision does not list it
	for i := range d.Budgets {
		if b := &d.Budgets[i]; d.Admitted() || b.UsageKey.named() == d.Blames {
			r.about(b)
			break
		}
	}
	return r
}

func (r *Receipt) about(b *BudgetDecision) {
	r.Budget, r.Instance, r.Unit, r.Version = b.Budget, b.Instance, b.Unit, b.Version
	r.Period, r.Until, r.Generation = b.Period, b.Until, b.Generation
	r.Limit, r.Share, r.Requested, r.Remaining = b.Limit, b.Share, b.Requested, b.Remaining
}

// named is the key as Decision.Blames names it.
func (k UsageKey) named() string { return Line{UsageKey: k}.Key() }
