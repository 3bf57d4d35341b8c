"""A bookshop: orders, payments, invoices, a dashboard, and sales counted by Spark."""
