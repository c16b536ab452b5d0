package cli

import (
	"errors"
	"slices"
	"strings"
)

// refusedTLS is what the database's driver says where a server has no TLS and sslmode=prefer lets it go on without.
const refusedTLS = "server refused TLS connection"

// onceEach tells the tries of one connection as one cause: the driver tries with TLS and without, and to each address of a
// name, and lists every failure.
func onceEach(err error) error {
	list := tries(err)
	var causes []string
	for _, try := range list {
		if !slices.Contains(causes, try.Error()) {
			causes = append(causes, try.Error())
		}
	}
	if more := slices.DeleteFunc(slices.Clone(causes), func(c string) bool { return strings.Contains(c, refusedTLS) }); len(more) > 0 {
		causes = more
	}
	if len(causes) == len(list) {
		return err
	}
	listed := "\n\t" + strings.ReplaceAll(errors.Join(list...).Error(), "\n", "\n\t")
	told := " " + causes[0]
	if len(causes) > 1 {
		told = "\n\t" + strings.Join(causes, "\n\t")
	}
	return &retold{strings.Replace(err.Error(), listed, told, 1), err}
}

// tries are the errors of the first list in an error's chain.
func tries(err error) []error {
	for ; err != nil; err = errors.Unwrap(err) {
		if list, ok := err.(interface{ Unwrap() []error }); ok {
			return list.Unwrap()
		}
	}
	return nil
}

// retold is an error in fewer words.
type retold struct {
	text string
	error
}

func (r *retold) Error() string { return r.text }

func (r *retold) Unwrap() error { return r.error }
