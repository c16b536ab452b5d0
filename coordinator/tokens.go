package coordinator

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
)

// The roles of tokens. An admin does everything; a viewer reads; a region syncs, for itself.
const (
	RoleAdmin  = "admin"
	RoleViewer = "viewer"
	RoleRegion = "region"
)

// maxTokens bounds how many credentials a deployment has.
const maxTokens = 1000

// newToken makes a token with 160 random bits:
//
//	tranche_admin_NAME_SECRET
//	tranche_viewer_NAME_SECRET
//	tranche_region_DEPLOYMENT_REGION_SECRET
//
// Names have no underscore, so the parts are told apart. A region reads its deployment from its token and refuses the
// answers of a coordinator of another one.
func (s *Service) newToken(role, deployment, name string) string {
	parts := []string{"tranche", role}
	if role == RoleRegion {
		parts = append(parts, deployment)
	}
	return strings.Join(append(parts, name, s.random.hex(20)), "_")
}

func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// regionToken is the name of a region's token; no other token's name has a colon.
func regionToken(region string) string { return "region:" + region }

// tokenName reads whose token it claims to be.
func tokenName(token string) (name string, ok bool) {
	parts := strings.Split(token, "_")
	switch {
	case len(parts) == 4 && (parts[1] == RoleAdmin || parts[1] == RoleViewer):
		return parts[2], true
	case len(parts) == 5 && parts[1] == RoleRegion:
		return regionToken(parts[3]), true
	}
	return "", false
}

// authenticate finds the credential of a token. It compares in constant time, and says of a failure only that it failed.
func (s *state) authenticate(token string) (TokenDocument, bool) {
	name, ok := tokenName(token)
	s.mu.Lock()
	d := s.tokens[name]
	s.mu.Unlock()
	want, old := strings.Repeat("0", 2*sha256.Size), strings.Repeat("0", 2*sha256.Size)
	if d != nil {
		want = d.value.Hash
		if d.value.Old != "" && s.now().Before(d.value.OldUntil) {
			old = d.value.Old
		}
	}
	given := []byte(hashToken(token))
	same := subtle.ConstantTimeCompare(given, []byte(want))|subtle.ConstantTimeCompare(given, []byte(old)) == 1
	if !ok || d == nil || !same {
		return TokenDocument{}, false
	}
	return d.value, true
}

// TokenAnswer is a token as it is listed; Token is its text, said once, when it is made.
type TokenAnswer struct {
	Name   string `json:"name"`
	Role   string `json:"role"`
	Region string `json:"region,omitempty"`
	Made   string `json:"made"`
	By     string `json:"by"`
	Token  string `json:"token,omitempty"`

	OldUntil string `json:"old_until,omitempty"` // until then the token before the last rotation is taken, too
}

func answerToken(d TokenDocument) TokenAnswer {
	a := TokenAnswer{Name: d.Name, Role: d.Role, Region: d.Region, Made: d.Made.Format(timeForm), By: d.By}
	if d.Old != "" {
		a.OldUntil = d.OldUntil.UTC().Format(timeForm)
	}
	return a
}

// CreateToken makes an admin's or a viewer's token.
func (s *Service) createToken(ctx context.Context, who actor, name, role string) (TokenAnswer, error) {
	if !allocation.ValidRegion(name) {
		return TokenAnswer{}, invalid("name", fmt.Sprintf("%.70q is not a token's name", name), "use 1 to 63 of a-z 0-9 -")
	}
	if role != RoleAdmin && role != RoleViewer {
		return TokenAnswer{}, invalid("role", fmt.Sprintf("%.40q is not a role", role), "use admin or viewer; a region's token is made with the region")
	}
	secret := s.newToken(role, "", name)
	d := TokenDocument{Format: documentFormat, Name: name, Role: role, Hash: hashToken(secret), Made: s.now().UTC(), By: who.name}
	err := s.act(ctx, func() (Change, error) {
		switch {
		case s.state.tokens[name] != nil:
			return Change{}, problem(409, CodeExists, "there is a token of this name", "revoke it first, or choose another name")
		case len(s.state.tokens) >= maxTokens:
			return Change{}, refused("revoke tokens that nobody uses", "there are %d tokens already", maxTokens)
		}
		return Change{
			Reads: []Item{{Key: tokenKey(name)}},
			Puts:  []Item{put(tokenKey(name), d), s.auditLine(who, "token.create", name, nil, answerToken(d))},
		}, nil
	})
	answer := answerToken(d)
	answer.Token = secret
	return answer, err
}

// rotateToken makes a second token of a name, a region's too ("region:NAME"). The one before it is taken until the overlap
// is over, so that whoever uses it changes it without a moment in between.
func (s *Service) rotateToken(ctx context.Context, who actor, name string, overlap allocation.Duration) (TokenAnswer, error) {
	if overlap < 0 || overlap > maxRotation {
		return TokenAnswer{}, invalid("overlap", fmt.Sprintf("is %s", overlap), fmt.Sprintf("use 0s to %s", maxRotation))
	}
	var answer TokenAnswer
	err := s.act(ctx, func() (Change, error) {
		d := s.state.tokens[name]
		if d == nil {
			return Change{}, notFound("token", name)
		}
		if s.state.deployment == nil {
			return Change{}, errStarting
		}
		next, short := d.value, name
		if d.value.Role == RoleRegion {
			short = d.value.Region
		}
		secret := s.newToken(d.value.Role, s.state.deployment.value.ID, short)
		next.Hash, next.Made, next.By = hashToken(secret), s.now().UTC(), who.name
		if next.Old, next.OldUntil = "", (time.Time{}); overlap > 0 {
			next.Old, next.OldUntil = d.value.Hash, s.now().UTC().Add(time.Duration(overlap)*time.Second)
		}
		answer = answerToken(next)
		answer.Token = secret
		told := answerToken(next)
		change := Change{
			Reads: []Item{d.item},
			Puts:  []Item{put(tokenKey(name), next), s.auditLine(who, "token.rotate", name, answerToken(d.value), told)},
		}
		if next.Role == RoleRegion {
			s.keepReceiptKey(&change, next)
		}
		return change, nil
	})
	return answer, err
}

func (s *Service) listTokens() []TokenAnswer {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	list := []TokenAnswer{}
	for _, name := range slices.Sorted(maps.Keys(s.state.tokens)) {
		list = append(list, answerToken(s.state.tokens[name].value))
	}
	return list
}

// revokeToken ends a token at once on this replica, and on the others as soon as they hear of it. The last admin token
// stays: nobody could make another.
func (s *Service) revokeToken(ctx context.Context, who actor, name string) error {
	return s.act(ctx, func() (Change, error) {
		d := s.state.tokens[name]
		if d == nil {
			return Change{}, notFound("token", name)
		}
		change := Change{
			Reads:   []Item{d.item},
			Deletes: []string{tokenKey(name)},
			Puts:    []Item{s.auditLine(who, "token.revoke", name, answerToken(d.value), nil)},
		}
		if d.value.Role != RoleAdmin {
			return change, nil
		}
		for _, other := range slices.Sorted(maps.Keys(s.state.tokens)) {
			if o := s.state.tokens[other]; other != name && o.value.Role == RoleAdmin {
				// Compared, so that two revocations at once cannot leave none.
				change.Reads = append(change.Reads, o.item)
				return change, nil
			}
		}
		return Change{}, refused("create another admin token first", "%s is the last admin token", name)
	})
}
