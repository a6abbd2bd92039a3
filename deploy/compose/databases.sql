-- The database of users and permissions; the image makes `tracking` itself.
CREATE DATABASE auth;
