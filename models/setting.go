package models

import (
	"context"

	"gorm.io/gorm/clause"
)

type setting struct {
	Name  string `gorm:"primaryKey"`
	Value string
}

// SettingOrSet returns a shared value, storing the given one first if there is none.
func (s *Store) SettingOrSet(ctx context.Context, name, value string) (string, error) {
	db := s.db.WithContext(ctx)
	if err := db.Clauses(clause.OnConflict{DoNothing: true}).Create(&setting{name, value}).Error; err != nil {
		return "", err
	}
	var found setting
	err := db.Where("name = ?", name).Take(&found).Error
	return found.Value, err
}

// SwapSetting replaces a shared value if it still is old, and says whether it was.
func (s *Store) SwapSetting(ctx context.Context, name, old, value string) (bool, error) {
	res := s.db.WithContext(ctx).Model(&setting{}).Where("name = ? AND value = ?", name, old).Update("value", value)
	return res.RowsAffected > 0, res.Error
}
