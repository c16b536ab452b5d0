package postgres

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"tranche/regional"
)

// What Postgres, and tranche.expect, say.
const (
	codeRaced           = "TR001"
	codeHistoryLost     = "TR002"
	codeHandedOver      = "TR003"
	codeUnique          = "23505"
	codeSerialization   = "40001"
	codeDeadlock        = "40P01"
	codeLockNotThere    = "55P03" // lock_timeout
	codeIdleTooLong     = "25P03" // idle_in_transaction_session_timeout: fires only while nothing is on its way
	codeUndefinedTable  = "42P01"
	codeInvalidSchema   = "3F000"
	codeUndefinedColumn = "42703"
	codeQueryCanceled   = "57014" // statement_timeout, or on request
)

// translate gives an error of a transaction that was not committed its meaning.
func translate(err error) error {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return err
	}
	switch refused.Code {
	case codeRaced, codeUnique, codeSerialization, codeDeadlock, codeLockNotThere:
		return fmt.Errorf("%w: %w", regional.ErrRaced, err)
	case codeHistoryLost:
		return fmt.Errorf("%w: %w", regional.ErrHistoryLost, err)
	case codeHandedOver:
		return fmt.Errorf("%w: %w", regional.ErrHandedOver, err)
	case codeUndefinedTable, codeInvalidSchema, codeUndefinedColumn:
		return fmt.Errorf("%w: %w", regional.ErrNotReady, err)
	}
	return err
}

// uncommitted says whether an error proves that the commit of a pipeline did not happen. alive says that the connection
// is, which after an error of the server means that it has read the pipeline to its end and skipped the commit.
func uncommitted(err error, alive bool) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return alive || refused.Code == codeIdleTooLong
	}
	var unsent pgx.ErrPreprocessingBatch // the statements were not sent
	return errors.As(err, &unsent) || pgconn.SafeToRetry(err)
}
