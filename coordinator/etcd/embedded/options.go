package embedded

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

const (
	// MemberVariable holds the Options of a member that is a child process, as
	// JSON.
	MemberVariable = "TRANCHE_ETCD_MEMBER"

	// quotaBytes is how large the store may grow before etcd refuses writes. It
	// is etcd's own default, spelled out because an alarm is measured against it.
	quotaBytes = 2 << 30
	// compactEvery is the age past which old revisions are dropped.
	compactEvery = "1m"

	defaultName  = "tranche"
	loopbackAny  = "127.0.0.1:0"
	clusterToken = "tranche"
)

// Options says which member to run. The zero value is a single member with fresh
// data in a temporary folder, on free ports of 127.0.0.1.
type Options struct {
	// Dir keeps the member's data. Empty: a temporary folder, removed at Close.
	Dir string
	// ClientAddr is where clients are served, host:port, without TLS. Empty: a
	// free port of 127.0.0.1.
	ClientAddr string
	// PeerAddr is where other members reach this one, host:port. Empty: a free
	// port of 127.0.0.1, for a single member only.
	PeerAddr string
	// Name is the member's name in InitialCluster. Empty: "tranche".
	Name string
	// InitialCluster names all members, this one among them, as
	// "name=http://host:port,…". Empty: this member alone. It is read only when
	// Dir is empty.
	InitialCluster string
	// Logger hears what etcd warns of. Nil: nobody does.
	Logger hclog.Logger `json:"-"`
}

// OptionsFromEnvironment reads what StartProcesses left for a child. ok is false
// if this process was not started as a member.
func OptionsFromEnvironment() (options Options, ok bool, err error) {
	text, ok := os.LookupEnv(MemberVariable)
	if !ok {
		return Options{}, false, nil
	}
	if err := json.Unmarshal([]byte(text), &options); err != nil {
		return Options{}, true, fmt.Errorf("read %s: %w", MemberVariable, err)
	}
	return options, true, nil
}

func (o Options) environment() (string, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", MemberVariable, err)
	}
	return MemberVariable + "=" + string(text), nil
}

func (o Options) withDefaults() Options {
	if o.ClientAddr == "" {
		o.ClientAddr = loopbackAny
	}
	if o.PeerAddr == "" {
		o.PeerAddr = loopbackAny
	}
	if o.Name == "" {
		o.Name = defaultName
	}
	return o
}

// config translates to etcd's words. Dir must be set.
func (o Options) config() (*embed.Config, error) {
	client, err := addressURL(o.ClientAddr)
	if err != nil {
		return nil, fmt.Errorf("client address: %w", err)
	}
	peer, err := addressURL(o.PeerAddr)
	if err != nil {
		return nil, fmt.Errorf("peer address: %w", err)
	}
	cfg := embed.NewConfig()
	cfg.Dir = o.Dir
	cfg.Name = o.Name
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = o.InitialCluster
	if cfg.InitialCluster == "" {
		cfg.InitialCluster = o.Name + "=" + peer.String()
	}
	cfg.InitialClusterToken = clusterToken
	cfg.AutoCompactionMode = embed.CompactorModePeriodic
	cfg.AutoCompactionRetention = compactEvery
	cfg.QuotaBackendBytes = quotaBytes
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapTo(o.Logger))
	return cfg, nil
}

func addressURL(address string) (url.URL, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return url.URL{}, fmt.Errorf("%q is not host:port: %w", address, err)
	}
	return url.URL{Scheme: "http", Host: address}, nil
}

// zapTo passes etcd's warnings and errors on, and drops the rest: etcd reports
// each of its steps, which are no transitions of ours.
func zapTo(logger hclog.Logger) *zap.Logger {
	if logger == nil {
		return zap.NewNop()
	}
	return zap.New(core{logger})
}
