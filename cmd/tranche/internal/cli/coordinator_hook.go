package cli

import (
	"bytes"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"tranche/coordinator"
	"tranche/coordinator/webhook"
)

// hookOptions are the flags of the webhook.
type hookOptions struct{ url, secretFile string }

func (o *hookOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.url, "webhook-url", "", "`URL` that is told every event; https, unless it is on this machine")
	f.StringVar(&o.secretFile, "webhook-secret-file", "", "`FILE` of the secret that deliveries are signed with, at least 16 bytes")
}

// receiver is where events go; nil: nowhere.
func (o hookOptions) receiver() (coordinator.Sender, error) {
	switch {
	case o.url == "" && o.secretFile == "":
		return nil, nil
	case o.url == "":
		return nil, usagef("--webhook-secret-file without --webhook-url: give both, or neither")
	case o.secretFile == "":
		return nil, usagef("--webhook-url needs --webhook-secret-file FILE: deliveries are signed")
	}
	secret, err := os.ReadFile(o.secretFile)
	if err != nil {
		return nil, fmt.Errorf("read --webhook-secret-file: %w", err)
	}
	r, err := webhook.New(o.url, bytes.TrimSpace(secret))
	if err != nil {
		return nil, usagef("--webhook-url, --webhook-secret-file: %s", err)
	}
	return r, nil
}
