package pg

import (
	"reflect"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/gorm/schema"
)

// Reader takes the answer to one statement of several. Its error does not undo a COMMIT that was sent along: what a
// transaction depends on is to be read before that, after Flush.
type Reader = func(pgx.BatchResults) error

// Count reads how many rows a statement has changed.
func Count(n *int64) Reader {
	return func(r pgx.BatchResults) error {
		tag, err := r.Exec()
		*n = tag.RowsAffected()
		return err
	}
}

// Into reads rows as GORM's Scan does: all of them where dest points to a slice of structs, else the first one. A
// struct without a row is left alone.
func Into(dest any) Reader {
	return func(r pgx.BatchResults) error {
		rows, err := r.Query()
		if err != nil {
			return err
		}
		defer rows.Close()
		if err := scan(rows, dest); err != nil {
			return err
		}
		rows.Close()
		return rows.Err()
	}
}

// Each reads all rows and hands them on, one by one.
func Each[T any](take func(T)) Reader {
	return func(r pgx.BatchResults) error {
		var all []T
		err := Into(&all)(r)
		for _, one := range all {
			take(one)
		}
		return err
	}
}

// schemas are the structs that scan has seen, as GORM reads them.
var schemas sync.Map //nolint:gochecknoglobals // a cache

func parse(of any) (*schema.Schema, error) {
	return schema.Parse(of, &schemas, schema.NamingStrategy{IdentifierMaxLength: 64})
}

// Columns are the names of the columns that go to the fields of a struct.
func Columns(of any) ([]string, error) {
	s, err := parse(of)
	if err != nil {
		return nil, err
	}
	return slices.Clone(s.DBNames), nil
}

func scan(rows pgx.Rows, dest any) error {
	s, err := parse(dest)
	if err != nil {
		return err
	}
	out := reflect.ValueOf(dest).Elem()
	many := out.Kind() == reflect.Slice
	if many {
		out.SetZero()
	}
	for rows.Next() {
		row := reflect.New(s.ModelType).Elem()
		if err := rows.Scan(targets(s, row, rows.FieldDescriptions())...); err != nil {
			return err
		}
		if !many {
			out.Set(row)
			return nil
		}
		out.Set(reflect.Append(out, row))
	}
	return nil
}

// targets points to the fields that columns go to. A column without one is passed over.
func targets(s *schema.Schema, row reflect.Value, columns []pgconn.FieldDescription) []any {
	to := make([]any, len(columns))
	for i, c := range columns {
		if f := s.LookUpField(c.Name); f != nil {
			to[i] = row.FieldByIndex(f.StructField.Index).Addr().Interface()
		}
	}
	return to
}
