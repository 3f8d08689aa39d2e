"""What a subscription lets through: tags, SQL92, and the record of consumers' filters."""
